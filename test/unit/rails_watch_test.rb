# frozen_string_literal: true

require "test_helper"
require "open3"
require "rbconfig"

# Chaton's part for Rails is loaded with the application, although "chaton" was required before it.
class RailsWatchTest < Minitest::Test
  LIB = File.expand_path("../../lib", __dir__)

  def test_the_adapter_of_active_job_is_found
    needs_gems "bigdecimal"
    assert_equal "ActiveJob::QueueAdapters::ChatonAdapter", in_process(<<~RUBY)
      Chaton::RailsWatch.during do
        require "active_support"
        require "active_job"
        require "chaton"
        ActiveJob::Base.queue_adapter = :chaton
        print ActiveJob::Base.queue_adapter.class.name
      end
    RUBY
  end

  def test_an_application_without_rails_gets_nothing_of_it
    assert_equal "[nil, 0]", in_process(<<~RUBY)
      Chaton::RailsWatch.during { module Other; end }
      print [defined?(ActiveSupport), $LOADED_FEATURES.grep(%r{chaton/rails\\.rb}).size].inspect
    RUBY
  end

  private

  def in_process(code)
    out, err, status = Open3.capture3(RbConfig.ruby, "-W0", "-I", LIB, "-r", "chaton", "-r", "chaton/rails_watch",
                                      stdin_data: code)
    assert_equal ["", true], [err, status.success?]
    out
  end
end
