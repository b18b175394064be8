# frozen_string_literal: true

module Chaton
  # More threads than database connections wait for a connection instead of for the database.
  module ActiveRecordPool
    SETTING = "`pool:` (from Rails 8.1 on `max_connections:`) in config/database.yml"
    private_constant :SETTING

    # How many threads a process should have beside an ActiveRecord that was loaded.
    #
    # @param pool_size [Integer, nil] of ActiveRecord's connection pool; nil without ActiveRecord
    # @return [Array(Integer, String, Symbol)] the maximum of threads, a sentence to log or nil, and its level
    def self.threads_max(plan, pool_size)
      max = plan.threads_max
      return [max, nil, nil] if pool_size.nil? || max == pool_size
      return below(max, pool_size) if plan.threads_max_given?

      max = [pool_size, plan.threads_min].max
      [max, "threads: at most #{max}, the size of ActiveRecord's connection pool (#{pool_size}); " \
            "set #{SETTING} or `threads` to choose", :info]
    end

    # @return [Integer, nil] the size of the primary connection pool, nil where there is none, or it has no bound
    def self.size
      return unless defined?(::ActiveRecord::Base)

      config = ::ActiveRecord::Base.connection_db_config
      # Rails 8.1 warns of the old name.
      config.respond_to?(:max_connections) ? config.max_connections : config.pool
    rescue StandardError
      # Loaded and never configured: the application does without a database.
      nil
    end

    # Closes the connections of this process, which no fork of it may use. They are opened again when they are needed.
    #
    # @return [void]
    def self.disconnect(log)
      return unless defined?(::ActiveRecord::Base)

      # Before Rails 7.1 only one role can be given.
      roles = ::ActiveRecord.gem_version >= Gem::Version.new("7.1") ? [:all] : []
      ::ActiveRecord::Base.connection_handler.clear_all_connections!(*roles)
    rescue StandardError => e
      log.exception(e, "the connections to databases cannot be closed before workers are forked")
    end

    def self.below(max, pool_size)
      return [max, nil, nil] if max < pool_size

      [max, "threads: up to #{max}, and ActiveRecord's connection pool has #{pool_size}: threads above that wait " \
            "for a connection; raise #{SETTING} or lower the maximum of `threads`", :warn]
    end
    private_class_method :below
  end
end
