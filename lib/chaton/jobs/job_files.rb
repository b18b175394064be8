# frozen_string_literal: true

require_relative "../errors"

module Chaton
  module Jobs
    # Loads the files that define an application's jobs or consumers.
    class JobFiles
      # File that boots a Rails application.
      ENVIRONMENT = "config/environment.rb"

      # @param section [Symbol] :jobs or :streams
      def initialize(plan, log, section: :jobs)
        @root = plan.root
        @section = section
        @paths = plan.public_send(section)&.load || []
        @log = log
      end

      # @raise [AppLoadError] naming the file
      def load
        boot_rails
        @paths.each { |path| load_path(path) }
      end

      private

      def boot_rails
        return if rails?

        file = [@root, *@paths].map { |path| File.join(path, ENVIRONMENT) }.find { |path| File.file?(path) }
        load_file(file) if file
      end

      def load_path(path)
        if File.directory?(path)
          return if of_rails?(path)

          Dir.glob("**/*.rb", base: path).sort.each { |name| load_file(File.join(path, name)) }
        elsif (file = [path, "#{path}.rb"].find { |name| File.file?(name) })
          load_file(file)
        else
          raise AppLoadError, "#{@section} { load #{path.inspect} }: there is no such file or directory"
        end
      end

      # Files that Rails autoloads must not be required: its reloader would not track them.
      def of_rails?(path)
        return false unless rails?
        return true if File.file?(File.join(path, ENVIRONMENT))

        ::Rails.autoloaders.any? { |loader| loader.dirs.any? { |dir| "#{path}/".start_with?("#{dir}/") } }
      end

      def load_file(file)
        require file
      rescue ScriptError, StandardError, NoMemoryError, SystemStackError => e
        raise AppLoadError, "#{file} cannot be loaded: #{e.message} (#{e.class})"
      end

      def rails? = defined?(::Rails.application) && ::Rails.application ? true : false
    end
  end
end
