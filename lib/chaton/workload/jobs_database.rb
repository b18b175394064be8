# frozen_string_literal: true

require_relative "../errors"

module Chaton
  class Workload
    # Refuses a SQLite store, or log of records, whose file is also a database of the application. The application has
    # its own copy of SQLite: when either copy closes the file, POSIX drops the locks that the other one holds on it.
    module JobsDatabase
      # @param plan [Config::Plan] of a process whose application is loaded
      # @raise [ConfigError] naming the file
      def self.check(plan)
        check_file(plan, plan.jobs&.store_file, "the store of jobs", "jobs { store \"sqlite://storage/jobs.db\" }")
        check_file(plan, plan.streams&.log_file, "the log of records", "streams { broker \"sqlite://storage/log.db\" }")
      end

      def self.check_file(plan, file, what, advice)
        return unless file

        require_directory(plan, file, what, advice)
        name, = databases(plan.root).find { |_, path| same?(path, file) }
        return unless name

        raise ConfigError, "#{what}, #{file}, is ActiveRecord's database #{name.inspect} too: two copies of SQLite " \
                           "in one process drop each other's locks on a file, and it would be damaged. Give it a " \
                           "file of its own: #{advice}"
      end

      # Refuses a path that is mistyped. Only storage/ is made.
      def self.require_directory(plan, file, what, advice)
        directory = File.dirname(file)
        # The directory of log:// is made.
        return if File.exist?(directory) || directory == File.join(plan.root, "storage")
        return if file == plan.streams&.log_file && plan.streams.broker.start_with?(Config::BrokerAddress::DIRECTORY)

        raise ConfigError, "the directory of #{what}, #{file}, does not exist: create it, or correct " \
                           "#{advice[/\A\w+ \{ \w+/]} … }"
      end

      # @return [Array<(String, String)>] name and path of each SQLite database that ActiveRecord knows
      def self.databases(root)
        return [] unless defined?(::ActiveRecord::Base)

        root = ::Rails.root.to_s if defined?(::Rails.root) && ::Rails.root
        ::ActiveRecord::Base.configurations.configurations.filter_map do |config|
          path = config.configuration_hash[:database].to_s
          next unless config.configuration_hash[:adapter].to_s.start_with?("sqlite3") && file?(path)

          [config.name, File.expand_path(path.delete_prefix("file:").sub(/\?.*/, ""), root)]
        end
      end

      def self.file?(path) = !path.empty? && !path.include?(":memory:")

      # Neither file has to exist yet, and one may be a link to the other.
      def self.same?(path, file) = real(path) == real(file) || File.identical?(path, file)

      def self.real(path)
        File.realdirpath(path)
      rescue SystemCallError
        path
      end
      private_class_method :check_file, :require_directory, :databases, :file?, :same?, :real
    end
  end
end
