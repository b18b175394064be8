# frozen_string_literal: true

# Rails' tests of ActionController::Live, with what Chaton adds to controllers.
require "chaton/rails"
require_relative "dispatch/live_response_test"
require_relative "controller/live_stream_test"
