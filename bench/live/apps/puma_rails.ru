# frozen_string_literal: true

require_relative "queues"
require_relative "rails_app"

# Holds a thread of its own, beside that of Puma.
class StreamsController < ActionController::Base
  include ActionController::Live

  def show
    response.headers["Content-Type"] = "text/event-stream"
    # Otherwise the middleware for ETag waits for the end.
    response.headers["Last-Modified"] = Time.now.httpdate
    feed(params[:id], response.stream)
  end
end

run Rails.application
