# frozen_string_literal: true

require_relative "work"

run Rails.application
