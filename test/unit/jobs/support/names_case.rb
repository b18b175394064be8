# frozen_string_literal: true

# Sidekiq's names without the gem, on the store of the variable STORE. It runs in a process of its own (see
# SidekiqNamesTest), since it defines the module Sidekiq.
require "minitest/autorun"
require "logger"
require "tmpdir"
require_relative "engine_case"
require "chaton/sidekiq"

STORE_URL = ENV.fetch("STORE")
REDIS = STORE_URL.start_with?("redis")

# One job class, and what it was told.
class Listed
  include Sidekiq::Job
  sidekiq_options queue: :low, tags: ["a"]
  sidekiq_class_attribute :seen
  self.seen = []
  def perform(*args) = seen << [args, jid]
end

# What every test here needs.
class NamesCase < Minitest::Test
  def setup
    @folder = Dir.mktmpdir("chaton-names")
    url = STORE_URL == "sqlite" ? "sqlite://#{@folder}/jobs.db" : STORE_URL
    @native = Chaton::Native::JobsClient.new(JSON.generate({ **EngineCase::STORE, url: url }))
    %w[scheduled retry dead queue:low queue:default].each { |place| @native.clear(place, 0) }
    %w[processed failed].each { |name| @native.reset_counter(name) }
    @setup = Chaton::Jobs::Setup.new
    Chaton::Jobs.instance_variable_set(:@setup, @setup)
    Chaton::Jobs.swap_client(Chaton::Jobs::Client.new(@native, setup: @setup))
    Sidekiq.redis = nil if Sidekiq.redis_pool
    Listed.seen.clear
  end

  def teardown
    @native.close
    FileUtils.remove_entry(@folder)
  end

  def document(jid, **more) = { "class" => "Listed", "args" => [1], "queue" => "low", "jid" => jid, **more }
end
