# frozen_string_literal: true

require_relative "evidence"
require_relative "role_server"

# The real `exe/chaton` consuming streams: configuration and consumers in a scratch directory.
class StreamsServer < RoleServer
  EVIDENCE = File.expand_path("evidence.rb", __dir__)

  # @param broker [String] the log's address
  # @param topics [String] lines of `streams { }`
  # @param consumers [String] Ruby: the consumer classes
  # @param evidence [String] directory of the evidence
  # @param config [String] more of the configuration
  # @param options [Hash] as of Server
  def initialize(broker:, evidence:, topics: "", consumers: "", workers: "streams: 1", threads: "1..8", config: "",
                 **options)
    env = { Evidence::VARIABLE => evidence }.merge(options.fetch(:env, {}))
    super(rackup: nil, **options, env: env, config: <<~RUBY)
      workers #{workers}
      threads #{threads}
      #{config}
      streams do
        broker #{broker.dump}
        load "app/consumers"
        #{topics}
      end
    RUBY
    write("app/consumers/consumers.rb", "require #{EVIDENCE.dump}\n#{consumers}")
  end

  # Runs a command of `chaton streams`.
  #
  # @return [(String, String, Integer)] output, errors, exit status
  def streams_command(*words, input: "") = run_command("streams", *words, input: input)
end
