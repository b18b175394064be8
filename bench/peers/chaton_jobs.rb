# frozen_string_literal: true

require_relative "job_server"

module Bench
  # Chaton from this checkout, running jobs only, in one process.
  class ChatonJobs < JobServer
    # @param threads [String, nil] "MIN:MAX"; nil: Chaton's default
    # @param sqlite [Boolean] whether the store is SQLite, durable by default, instead of Redis
    def initialize(threads: nil, sqlite: false)
      super()
      @threads = threads
      @sqlite = sqlite
    end

    def label = ["chaton", @sqlite ? "sqlite" : nil, @threads&.then { |range| "-t #{range}" }].compact.join(" ")
    def chaton? = true
    def on_disk? = @sqlite

    # @return [String] the whole configuration
    def configuration(folder, url)
      <<~RUBY
        require "chaton/sidekiq"
        #{"threads #{@threads.dump}" if @threads}
        jobs do
          store #{store(folder, url).dump}
          queues "default"
          load #{JOBS.dump}
        end
      RUBY
    end

    private

    def store(folder, url) = @sqlite ? "sqlite://#{folder}/jobs.db" : url

    def command(folder, _url)
      ["ruby", *library_path, "#{ROOT}/exe/chaton", "--jobs", "-w", "0", "-C", "#{folder}/chaton.rb",
       "--control-socket", "none", "-e", "production"]
    end

    def environment(folder, url)
      path = File.join(folder, "chaton.rb")
      File.write(path, configuration(folder, url))
      { "CHATON_CONFIG" => path }
    end

    def library_path = ["-I#{ROOT}/lib"]
    def library = "chaton/sidekiq"
  end
end
