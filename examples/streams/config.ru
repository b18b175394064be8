# frozen_string_literal: true

require_relative "app/visits"

run Visits.new
