# frozen_string_literal: true

require "test_helper"
require "fileutils"
require "net/http"
require "open3"
require "rbconfig"
require "tmpdir"
require "support/bundle"
require "support/http_client"
require "support/output"

# An application as `rails new` makes it, with a scaffold, moves over by a line in its Gemfile and the generator.
class NewApplicationTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  # Puma and the adapter of the application before are named by nobody here.
  ENVIRONMENT = { "CHATON_RAILS" => nil, "RAILS_ENV" => nil, "RACK_ENV" => nil, "PORT" => nil, "WEB_CONCURRENCY" => nil,
                  "SECRET_KEY_BASE_DUMMY" => "1" }.freeze
  # How a browser is started as root and without downloading its driver.
  BROWSER = <<~RUBY
    require "test_helper"
    require "chaton/capybara"
    Capybara.server = :chaton
    Selenium::WebDriver::Chrome::Service.driver_path = "/usr/bin/chromedriver"
    class ApplicationSystemTestCase < ActionDispatch::SystemTestCase
      driven_by :selenium, using: :headless_chrome, screen_size: [1400, 1400] do |options|
        %w[no-sandbox disable-gpu disable-dev-shm-usage].each { |name| options.add_argument(name) }
      end
    end
  RUBY
  SYSTEM_TEST = <<~RUBY
    require "application_system_test_case"
    class PostsTest < ApplicationSystemTestCase
      test "a post is written in the browser" do
        assert_equal Capybara.servers[:chaton], Capybara.server
        visit posts_url
        click_on "New post"
        fill_in "Title", with: "A cat"
        click_on "Create Post"
        assert_text "Post was successfully created"
        assert_text "A cat"
        assert_equal "cat", evaluate_script("document.cookie = 'pet=cat'; document.cookie").split("=").last
      end
    end
  RUBY
  JOB = <<~RUBY
    class NoteJob < ApplicationJob
      def perform = File.write(Rails.root.join("tmp/noted"), Rails.env)
    end
  RUBY

  # What the last column of that table says was tried. `bootsnap`, `debug` and `web-console` come with the application.
  BESIDE = {
    "Gemfile.beside" => <<~RUBY,
      eval_gemfile "Gemfile"
      group(:development) { %w[letter_opener rack-mini-profiler spring].each { |name| gem name } }
    RUBY
    "config/initializers/beside.rb" => "Rails.application.config.action_mailer.delivery_method = :letter_opener\n",
    "app/mailers/letter_mailer.rb" => <<~RUBY,
      class LetterMailer < ApplicationMailer
        def letter = mail(to: "a@example.org", subject: "s", body: "a letter")
      end
    RUBY
    "app/controllers/beside_controller.rb" => <<~RUBY
      class BesideController < ActionController::Base
        def fail
          seen = "raised here"
          raise seen.upcase
        end

        def stop
          debugger(do: "puts 'seen by debug'")
          head :ok
        end

        def mail
          LetterMailer.letter.deliver_now
          head :ok
        end
      end
    RUBY
  }.freeze
  # As the console's script sends it.
  CONSOLE = { "accept" => "application/vnd.web-console.v2", "x-requested-with" => "XMLHttpRequest",
              "content-type" => "application/x-www-form-urlencoded" }.freeze

  class << self
    # @return [String] the application, made once for all tests
    def application
      @application ||= make.tap { |root|
        Minitest.after_run {
          FileUtils.remove_entry(File.dirname(root))
        }
      }
    end

    # @return [String] the output
    def run_in(root, *command, env: {}, input: "")
      out, status = Open3.capture2e({ **ENVIRONMENT, **env }, *command, chdir: root, stdin_data: input)
      status.success? ? out : raise("#{command.join(" ")}: #{status}\n#{out}")
    end

    def bundle(root, **options) = run_in(root, Bundle.command, "install", "--local", "--quiet", **options)

    def write(root, name, text)
      FileUtils.mkdir_p(File.dirname(File.join(root, name)))
      File.write(File.join(root, name), text)
    end

    private

    def make
      folder = File.realpath(Dir.mktmpdir("chaton-new"))
      rails = 'load Gem.bin_path("railties", "rails", ">= 0.a")'
      run_in(folder, RbConfig.ruby, "-e", rails, "new", "blog", "--skip-bundle", "--skip-git")
      root = File.join(folder, "blog")
      keep_gems_that_are_here(root)
      bundle(root)
      run_in(root, "bin/rails", "generate", "scaffold", "post", "title", "body:text")
      File.write(File.join(root, "Gemfile"), "gem \"chaton\", path: #{ROOT.dump}\n", mode: "a")
      bundle(root)
      puts run_in(root, "bin/rails", "generate", "chaton:install")
      bundle(root)
      routes = File.join(root, "config/routes.rb")
      File.write(routes, File.read(routes).sub("draw do", "draw do\n  get \"beside/:action\", controller: \"beside\""))
      { "app/jobs/note_job.rb" => JOB, "test/application_system_test_case.rb" => BROWSER,
        "test/system/posts_test.rb" => SYSTEM_TEST }.each { |name, text| write(root, name, text) }
      run_in(root, "bin/rails", "db:prepare")
      root
    end

    # Removes the line of each gem that cannot be had here, takes an older one where it is there, and says so.
    def keep_gems_that_are_here(root)
      path = File.join(root, "Gemfile")
      lost, older = [], []
      kept = File.readlines(path).filter_map do |line|
        name, version = line.match(/^\s*gem "([^"]+)"(?:, "([^"]+)")?/)&.captures
        next line if name.nil? || Gem::Specification.find_all_by_name(name, *version, ">= 0.a").any?

        here = version && Gem::Specification.find_all_by_name(name).any?
        (here ? older : lost) << name
        line.sub(", \"#{version}\"", "") if here
      end
      File.write(path, kept.join)
      boot = File.join(root, "config/boot.rb")
      File.write(boot, File.read(boot).lines.grep_v(/bootsnap/).join) if lost.include?("bootsnap")
      puts "without #{lost.join(", ")}, which this lane does not have"
      puts "with older releases of #{older.join(", ")} than Rails asks for" if older.any?
    end
  end

  def setup = @root = NewApplicationTest.application

  def time_limit_s = 400

  def teardown
    FileUtils.rm_f(File.join(@root, "tmp/noted"))
    return unless @pid

    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  end

  def test_its_own_tests_pass
    assert_match(/^[1-9]\d* runs, \d+ assertions, 0 failures, 0 errors/, run_rails("test"))
  end

  def test_its_system_tests_pass_on_chaton
    assert_match(/^[1-9]\d* runs, \d+ assertions, 0 failures, 0 errors, 0 skips/, run_rails("test:system"))
  end

  def test_the_server_of_development_serves_its_page_and_runs_its_jobs
    start("bin/rails", "server", "-p", "0", "-b", "127.0.0.1")
    port = port_of_development
    assert_match(%r{<h1>Posts</h1>}, get(port, "/posts").body)
    assert_equal "200", get(port, "/chaton/").code
    noted_by("development")
    assert_equal 0, stop
  end

  # Each row of the table in docs/RAILS.md.
  def test_what_teams_have_beside_it_in_development
    beside = { "BUNDLE_GEMFILE" => File.join(@root, "Gemfile.beside"), "LAUNCHY_DRY_RUN" => "true" }
    BESIDE.each { |name, text| NewApplicationTest.write(@root, name, text) }
    NewApplicationTest.bundle(@root, env: beside)
    start("bin/rails", "server", "-p", "0", "-b", "127.0.0.1", env: beside)
    port = port_of_development
    assert_match(/mini-profiler-resources/, get(port, "/posts", "accept" => "text/html").body)
    failed = get(port, "/beside/fail", "accept" => "text/html")
    session = failed["x-web-console-session-id"] or flunk(failed.body)
    answer = Net::HTTP.start("127.0.0.1", port) do |client|
      client.put("#{failed["x-web-console-mount-point"]}/repl_sessions/#{session}", "input=seen", CONSOLE)
    end
    assert_match(/raised here/, answer.body)
    assert_equal "200", get(port, "/beside/stop").code
    wait(/seen by debug/)
    mailed = get(port, "/beside/mail")
    assert_equal "200", mailed.code, mailed.body
    wait_for { Dir[File.join(@root, "tmp/letter_opener/*/*.html")].any? { |path| File.read(path).match?(/a letter/) } }
    refute_empty Dir[File.join(@root, "tmp/cache/bootsnap/*")]
    assert_equal 0, stop
    spring("rails", "runner", "NoteJob.perform_later", env: beside)
    start("bin/rails", "server", "-p", "0", "-b", "127.0.0.1", env: beside)
    wait_for { File.exist?(File.join(@root, "tmp/noted")) }
    assert_equal 0, stop
  ensure
    run_in(Bundle.command, "exec", "spring", "stop", env: beside)
    BESIDE.each_key { |name| FileUtils.rm_f(File.join(@root, name)) }
  end

  def test_production_has_workers_and_a_process_of_its_own_for_jobs
    run_rails("db:prepare", env: { "RAILS_ENV" => "production" })
    File.write(File.join(@root, "config/chaton_production.rb"),
               "bind 'tcp://127.0.0.1:0'\nworkers web: 1, jobs: 1\njobs {}\n")
    start(Bundle.command, "exec", "chaton", "-C", "config/chaton_production.rb", env: { "RAILS_ENV" => "production" })
    port = wait(/ ready  listen=/)[/listen=\S+?:(\d+)/, 1]
    answer = get(port, "/up", "x-forwarded-proto" => "https")
    assert_equal "200", answer.code, answer.body
    noted_by("production", "CHATON_CONFIG" => "config/chaton_production.rb")
    assert_equal 0, stop
  end

  def test_jobs_have_a_command_of_their_own
    start("bin/jobs")
    wait(/ ready  /)
    noted_by("development")
    assert_equal 0, stop
  end

  private

  # Before Spring has loaded anything of the application, at times Ruby takes its thread that waits for an autoload, and
  # the one that loads, for a deadlock ("No live threads left").
  def spring(*words, **options)
    tries = 3
    begin
      run_in(Bundle.command, "exec", "spring", *words, **options)
    rescue RuntimeError => e
      raise unless e.message.include?("No live threads left") && (tries -= 1).positive?
      retry
    end
  end

  def run_in(*command, env: {}) = NewApplicationTest.run_in(@root, *command, env: env)

  def run_rails(*words, env: {}) = run_in("bin/rails", *words, env: env)

  def wait(pattern) = @output.wait_line(pattern, count: 1, timeout_s: 120)

  def port_of_development = wait(/ · http:\S+:\d+/)[/:(\d+)$/, 1]

  def wait_for
    Timeout.timeout(90) { sleep 0.05 until yield }
  end

  def start(*command, env: {})
    lines, input = IO.pipe
    @pid = Process.spawn({ **ENVIRONMENT, **env }, *command, chdir: @root, in: File::NULL, out: input, err: input)
    input.close
    @output = Output.new(lines)
  end

  # @return [Integer]
  def stop
    Process.kill(:TERM, @pid)
    Process.wait2(@pid).last.exitstatus.tap { @pid = nil }
  end

  def get(port, path, headers = {})
    Net::HTTP.start("127.0.0.1", port, read_timeout: 60) { |client| client.get(path, headers) }
  end

  def noted_by(environment, env = {})
    run_rails("runner", "NoteJob.perform_later or raise", env: { "RAILS_ENV" => environment, **env })
    path = File.join(@root, "tmp/noted")
    wait_for { File.size?(path) }
    assert_equal environment, File.read(path)
  end
end
