# frozen_string_literal: true

require_relative "errors"

module Chaton
  # The releases of Ruby that the tests ran with, and what is switched off in a newer one.
  #
  # The tracer and the preempter call functions of Ruby that are not part of its stable interface. In a release that was
  # never tried they may do something else, so both are off there.
  module RubyRelease
    # Oldest first; bin/matrix runs the tests with them.
    TRIED = %w[3.1 3.3 3.4 4.0].freeze
    # Set to 1, it switches everything on in a newer release, too.
    TRY_VARIABLE = "CHATON_UNTRIED_RUBY"
    # Lets Ruby 3.3 and later run many threads on a few native ones.
    MN_VARIABLE = "RUBY_MN_THREADS"

    # @return [Boolean] whether no test ever ran with it or a newer one
    def self.untried?(version = RUBY_VERSION) = (series(version) <=> series(TRIED.last)).positive?

    # @return [Boolean] whether functions may be called that are not part of Ruby's stable interface
    def self.unstable_calls?(version = RUBY_VERSION, env = ENV) = !untried?(version) || env[TRY_VARIABLE] == "1"

    # @return [Boolean] whether Ruby tells which thread holds its lock
    def self.gvl_events?(version = RUBY_VERSION) = (series(version) <=> [3, 3]) >= 0

    # @return [Array<String>] sentences for the log at boot
    # @raise [ConfigError] when a variable asks for what cannot be served with
    def self.warnings(version = RUBY_VERSION, env = ENV)
      check_mn_threads(version, env)
      [untried(version, env)].compact
    end

    # @return [String] why the tracer does not run
    def self.no_tracer
      "the tracer is off: Ruby #{RUBY_VERSION} is newer than #{TRIED.last}, the newest that Chaton was tried with"
    end

    def self.untried(version, env)
      return if unstable_calls?(version, env)

      "Ruby #{version} is newer than #{TRIED.last}, the newest that Chaton was tried with. Switched off, because " \
        "they call functions outside of Ruby's stable interface: the tracer (chaton profile) and the preempter, so " \
        "that a thread that computes lets others run after Ruby's own 100 ms, not after a few. " \
        "#{TRY_VARIABLE}=1 switches them on"
    end

    # Pool threads keep a native thread each, where Ruby has a function for that (from 3.4 on). Ruby's own test of the
    # variable is: a number other than 0.
    def self.check_mn_threads(version, env)
      value = env[MN_VARIABLE]
      return if value.to_i.zero? || series(version) != [3, 3]

      raise ConfigError, "#{MN_VARIABLE}=#{value} cannot be used with Ruby #{version}: its threads change their " \
                         "native threads, so the scheduler cannot see which one computes, and one long computation " \
                         "keeps all other requests waiting. Unset the variable, or use Ruby 3.4 or newer"
    end

    def self.series(version) = version.split(".").first(2).map(&:to_i)
    private_class_method :untried, :check_mn_threads, :series
  end
end
