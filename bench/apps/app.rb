# frozen_string_literal: true

require "digest"
require "fileutils"
require "open3"

module Bench
  module Apps
    # A real application, installed below tmp/apps. Its data are made once by NAME/seed.rb, and each server has a copy.
    # Subclasses have the folder of its config.ru in APP and the file with its data in SEEDED, say what cases are made
    # of (`name`, `version`, `asked`, ROUTES, TOUR), and define `install`, `start_services`, `seed`, `copy` and
    # `variables`.
    class App
      ROOT = File.expand_path("../..", __dir__)
      # The line by which the Gemfile of each server adds its gem.
      GEMS = { "puma" => %(gem "puma"), "chaton" => %(gem "chaton", path: "#{ROOT}") }.freeze
      # More than the threads of any server that is measured; the applications themselves say 5 or 10.
      POOL = 20
      # Bytes of its log that are shown if a server does not start.
      LOG_SHOWN = 4000
      # Name, title, path and the mode of load.lua.
      Route = Struct.new(:name, :title, :path, :mode)

      def self.instance = @instance ||= new
      private_class_method :new

      # @param app [String] its name
      # @return [String] where it is installed
      def self.folder(app) = File.join(ROOT, "tmp/apps", app)

      # @param app [String] its name
      # @return [String] a digest of what makes the data, for the name of the file that keeps them
      def self.seed_digest(app) = Digest::SHA256.file(seed_file(app)).hexdigest[0, 12]
      def self.seed_file(app) = File.join(__dir__, app, "seed.rb")

      # Installs and seeds it unless it is there.
      # @return [self]
      def prepare
        return self if @prepared
        install unless File.exist?(rackup)
        start_services
        seed unless File.exist?(self.class::SEEDED)
        @prepared = true
        self
      end

      def title = "#{name.capitalize} #{version}"
      def rackup = File.join(self.class::APP, "config.ru")

      # @param server [String] a key of GEMS
      # @return [Hash{String => String}] for one server's processes; its data are a copy of those that were seeded
      def environment(server)
        @copies = @copies.to_i + 1
        environment_on(server, copy(@copies))
      end

      # @return [Hash{String => String}] of what processes had loaded
      def versions = { name => version, "rails" => locked("rails") }

      # @return [String] a path with status 200
      def probe = "/"

      # @return [String] the end of what it has logged
      def log_end
        file = Dir[File.join(self.class::APP, "{instances/default/,}log/production.log")].first or return ""
        File.read(file, LOG_SHOWN, [File.size(file) - LOG_SHOWN, 0].max).to_s.force_encoding("UTF-8").scrub
      end

      # @return [Hash{String => String}] that a request under load has, as that of a person who has logged in
      def request_headers = {}

      private

      # @param data [Object] what `copy` returned, or what seeding uses
      def environment_on(server, data)
        { "RAILS_ENV" => "production", "RACK_ENV" => "production", "SECRET_KEY_BASE" => "s" * 64, "TZ" => "UTC",
          "BUNDLE_GEMFILE" => gemfile(server), **variables(data) }
      end

      def gemfile(server) = File.join(self.class::APP, "Gemfile.#{server}")
      def locked(gem) = File.read("#{gemfile("chaton")}.lock")[/^    #{gem} \((.+)\)/, 1]

      # @param text [String] what both have
      def write_gemfiles(text) = GEMS.each { |server, line| File.write(gemfile(server), "#{text}\n#{line}\n") }

      # Runs commands of the application's bundle on the data that are being made.
      def make(data, *commands)
        GEMS.each_key { |server| bundle(environment_on(server, data), "lock", "--local") }
        commands.each { |words| bundle(environment_on("puma", data), "exec", *words) }
      end

      def bundle(given, *words) = run(given, "bundle", *words, chdir: self.class::APP)

      def run(*command, **options)
        out, status = Open3.capture2e(*command, **options)
        return out if status.success?
        raise "#{command.grep(String).first(6).join(" ")} failed:\n#{out.lines.grep_v(/^\s+from /).last(30).join}"
      end
    end
  end
end
