# frozen_string_literal: true

require "rails/generators/base"

module Chaton
  # `rails g chaton:install`: from Puma and another adapter to Chaton, in files that a reader can check.
  class InstallGenerator < ::Rails::Generators::Base
    source_root File.expand_path("templates", __dir__)

    desc "Makes Chaton the server of this application, and runs its jobs"

    # The adapter that another gem has set.
    ADAPTER = /^( *)(# *)?config\.active_job\.queue_adapter *= *:\w+/
    # Where the page is shown: to nobody, until the application says who may see it.
    ROUTE = <<~RUBY
      # The page of Chaton. Say who may see it, for example with Devise:
      # authenticate :user, ->(user) { user.admin? } do
      #   mount Chaton::Dashboard => "/chaton"
      # end
      mount Chaton::Dashboard => "/chaton" if Rails.env.development?
    RUBY

    # Puma stays where it is needed: Capybara's system tests start it by default, and macOS has no Chaton.
    def gemfile
      path = File.join(destination_root, "Gemfile")
      return unless File.file?(path)

      gsub_file "Gemfile", /^gem ["']puma["'].*$/ do |line|
        line.include?("group") ? line : "#{line.sub(/\s*(#.*)?\z/, "")}, group: %i[development test] # Chaton serves"
      end
      append_to_file "Gemfile", "\ngem \"chaton\"\n" unless File.read(path).match?(/^\s*gem ["']chaton["']/)
    end

    # @return [void] fifteen lines, and blocks to uncomment
    def configuration
      template "chaton.rb", "config/chaton.rb"
      template "jobs", "bin/jobs"
      chmod "bin/jobs", 0o755, verbose: false
    end

    # The adapter stands in application.rb; tests keep Rails' own.
    def adapter
      path = "config/environments/production.rb"
      known = File.file?(File.join(destination_root, path)) && File.read(File.join(destination_root, path))
      gsub_file path, ADAPTER, '\1config.active_job.queue_adapter = :chaton' if known&.match?(ADAPTER)
      environment "config.active_job.queue_adapter = :chaton"
      environment "config.active_job.queue_adapter = :test", env: "test"
    end

    # `bin/rails server` runs the jobs too.
    def processes
      path = File.join(destination_root, "Procfile.dev")
      return unless File.file?(path)

      gsub_file "Procfile.dev", %r{^(?:jobs|worker): *(?:bundle exec )?(?:bin/jobs|rake solid_queue|sidekiq).*\n}, ""
    end

    # @return [void]
    def page
      route ROUTE
    end

    # @return [void]
    def notes
      say <<~TEXT

        Chaton is installed. Next:
          bundle install
          bin/rails server               # serves, and runs the jobs
          bundle exec chaton check       # prints the plan, and every mistake in the configuration
        config/puma.rb is read no more, now that config/chaton.rb exists#{puma_threads}.
        System tests use Puma; `Capybara.server = :chaton` (require "chaton/capybara") runs them on Chaton.
      TEXT
    end

    private

    # Puma's few threads are for requests that compute.
    def puma_threads
      path = File.join(destination_root, "config/puma.rb")
      return "" unless File.file?(path) && File.read(path).match?(/^ *threads\b/)

      ". Its `threads` was not copied: threads that wait\ncost others nothing here, and their number adjusts itself " \
        "(1 to 32, at most the database pool)"
    end
  end
end
