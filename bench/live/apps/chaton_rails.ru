# frozen_string_literal: true

require_relative "rails_app"
require "chaton"

SPEAKER = Speaker.new { |stream, text| Chaton.broadcast("s/#{stream}", text) }

# Authorizes nobody, and hands the response over.
class StreamsController < ActionController::Base
  def show = render_event_stream("s/#{params[:id]}")
end

run Rails.application
