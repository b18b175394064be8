# frozen_string_literal: true

require "test_helper"
require "support/crossings/site"

# Features where they cross: versions of HTTP, kinds of bodies, compression, kinds of requests, clients, failures and
# restarts, each case checked against a model of the RFCs. It takes all pairs of values; `bin/test crossings` takes the
# full product.
class CrossingsTest < Minitest::Test
  SHOWN_MAX = 20
  # Only these have shown that a stop ended encrypted connections which the application had taken over.
  ALWAYS = %w[
    https/partial/off/gzip/stalls/none/stop https/full/off/get/stalls/none/phased
    https/upgrade/off/range/stalls/close/phased
  ].freeze

  def time_limit_s = 3600

  def test_cases_are_answered_as_the_model_says
    cases = chosen
    failures = {}
    cases.group_by { |_, one| one.compress }.each do |compress, group|
      site = Crossings::Site.new(compress)
      failures.merge!(site.run(group.to_h))
    ensure
      site&.close
    end
    assert failures.empty?, report(failures, cases.size)
  end

  private

  # CASE names one case, CROSSINGS how many are taken of the full product.
  def chosen
    return { 0 => Crossings::Case.parse(ENV["CASE"]) } if ENV["CASE"]
    random = Random.new(seed = ENV.fetch("SEED", 1).to_i)
    cases = case ENV.fetch("CROSSINGS", "pairs")
            when "pairs" then Crossings.pairs(random) | ALWAYS.map { |text| Crossings::Case.parse(text) }
            when "all" then Crossings.all
            else Crossings.all.sample(ENV["CROSSINGS"].to_i, random: random)
            end
    puts "#{cases.size} cases, seed #{seed}"
    cases.each_with_index.to_h { |one, id| [id, one] }
  end

  def report(failures, total)
    shown = failures.first(SHOWN_MAX).map do |one, problems|
      ["CASE=#{one} ruby -Ilib -Itest test/integration/web/crossings_test.rb", *problems].join("\n    ")
    end
    "#{failures.size} of #{total} cases failed; the first of them:\n#{shown.join("\n")}"
  end
end
