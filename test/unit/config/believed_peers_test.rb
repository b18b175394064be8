# frozen_string_literal: true

require "test_helper"
require "chaton/config"

class BelievedPeersUnitTest < Minitest::Test
  TLS = { cert: "a.pem", key: "a.key" }.freeze

  def test_what_counts
    { [nil, false] => [[], :passed_on, /anybody/], [nil, true] => [[], :hidden_over_tcp, /nobody over TCP/],
      [["none"], false] => [[], :hidden, /nobody/], [["any"], true] => [[], :passed_on, /anybody/],
      [["10.0.0.0/8"], false] => [["10.0.0.0/8"], :hidden, %r{only what 10.0.0.0/8 say in X-Forwarded-For}] }
      .each do |(given, tls), (proxies, others, text)|
        believed = believed(given, tls)
        assert_equal [proxies, others, false], believed.engine.values_at(:proxies, :others, :sends_files)
        assert_match text, believed.to_s
      end
  end

  private

  def believed(given, tls)
    plan = Chaton::Config.load({ config_file: "-" }, env: {})
    web = plan.web.dup.tap { |one| one[:trusted_proxies] = given && [given] }
    bind = Chaton::Config::Types::BindAddress.new.cast(*(tls ? ["https://:443", TLS] : ["tcp://:80"]))
    plan.with(web: web, binds: [bind]).believed_peers
  end
end
