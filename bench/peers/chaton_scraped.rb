# frozen_string_literal: true

require_relative "../support/scraper"
require_relative "chaton_with"

module Bench
  # Chaton whose metrics are read each second while it is measured.
  class ChatonScraped < ChatonWith
    SETTINGS = "admin { bind \"unix://\#{__dir__}/admin.sock\" }"

    def initialize(**rest) = super(settings: SETTINGS, **rest)

    def name = "chaton scraped"

    def observed(&) = Scraper.new(File.join(@folder, "admin.sock")).during(&)
  end
end
