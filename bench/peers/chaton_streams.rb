# frozen_string_literal: true

require_relative "job_server"

module Bench
  # Chaton from this checkout, consuming streams only, in one process.
  class ChatonStreams < JobServer
    CONSUMERS = File.join(ROOT, "bench/streams/apps/consumers.rb")
    CLIENT = File.join(ROOT, "bench/streams/apps/client.rb")

    # @param threads [Integer] the minimum and the maximum
    # @param consumer [String] a class of bench/streams/apps/consumers.rb
    # @param routes [String] further options of each `topic`
    # @param settings [String] further lines of `streams { }`
    # @param note [String, nil] added to the label
    def initialize(threads: 1, consumer: "Untouched", routes: "", settings: "", note: nil)
      super()
      @threads = threads
      @consumer = consumer
      @routes = routes
      @settings = settings
      @note = note
      @topics = ["TOPIC"]
      @group = "GROUP"
    end

    # Sets the topics and the group. A new group begins with the first record.
    #
    # @return [self]
    def reading(topics, group)
      @topics = topics
      @group = group
      self
    end

    def label = ["chaton", @note].compact.join(" ")
    def chaton? = true

    # @return [String] the whole configuration
    def configuration(_folder, url)
      <<~RUBY
        threads "#{@threads}:#{@threads}"
        streams do
          broker #{url.dump}
          load #{CONSUMERS.dump}
          #{@settings}
          #{@topics.map { |topic| "topic #{topic.dump}, #{@consumer}, group: #{@group.dump}#{@routes}" }.join("\n  ")}
        end
      RUBY
    end

    # @return [Array] environment and words of the producing client
    def client(folder, url)
      [ENVIRONMENT.merge(environment(folder, url)), "ruby", "-I#{ROOT}/lib", CLIENT]
    end

    private

    def command(folder, _url)
      ["ruby", "-I#{ROOT}/lib", "#{ROOT}/exe/chaton", "--streams", "-w", "0", "-C", "#{folder}/chaton.rb",
       "--control-socket", "none", "-e", "production"]
    end

    def environment(folder, url)
      path = File.join(folder, "chaton.rb")
      File.write(path, configuration(folder, url))
      { "CHATON_CONFIG" => path }
    end
  end
end
