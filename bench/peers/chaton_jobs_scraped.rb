# frozen_string_literal: true

require_relative "../support/scraper"
require_relative "chaton_jobs"

module Bench
  # Chaton with jobs whose metrics are read each second while it is measured.
  class ChatonJobsScraped < ChatonJobs
    def label = super.sub("chaton", "chaton scraped")

    def configuration(folder, url) = "#{super}admin { bind \"unix://#{folder}/admin.sock\" }\n"

    def observed(&) = Scraper.new(File.join(@folder, "admin.sock")).during(&)

    def start(folder, url, env)
      @folder = folder
      super
    end
  end
end
