# frozen_string_literal: true

require "test_helper"
require "support/server"

# The stack that loading has used is given back in every process that loads the application.
class MainStackIntegrationTest < Minitest::Test
  include ServerTest

  # More than the 256 KiB that stay.
  DEEP = <<~RUBY
    def deep(levels) = levels.zero? ? 0 : [levels - 1].sum { |left| deep(left) }
    deep(2_000)
    run ->(_env) { [200, {}, [File.read("/proc/self/smaps")[/\\[stack\\]\\n.*?^Rss:\\s+(\\d+)/m, 1]]] }
  RUBY

  { "workers 0" => "production", "workers 0 " => "development", "workers 1\npreload false" => "production" }
    .each do |config, environment|
      define_method("test_#{config.tr(" \n", "__")}_in_#{environment}") do
        server = boot(rackup: DEEP, config: "#{config}\nenvironment \"#{environment}\"\n")
        assert_operator server.get.body.to_i, :<, 600
        assert_equal 0, server.stop
      end
    end
end
