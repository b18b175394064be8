# frozen_string_literal: true

require_relative "app/router"

run Router.new
