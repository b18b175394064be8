# frozen_string_literal: true

require "helper"

# Rails' tests name this adapter, whose gem is not here.
ActiveJob::QueueAdapters::SneakersAdapter = Class.new
# Those of other adapters need their gems.
Dir[File.expand_path("cases/**/*_test.rb", __dir__)].grep_v(/delayed_job|async/).each { |path| require path }

# It lists the adapters that Rails knows.
class ActiveJobTestCaseTest
  def test_set_test_adapter
    assert_kind_of ActiveJob::QueueAdapters::ChatonAdapter, ActiveJob::Base.queue_adapter
  end
end
