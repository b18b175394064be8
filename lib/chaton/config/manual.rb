# frozen_string_literal: true

require_relative "hook_names"
require_relative "options"
require_relative "puma_lines"

module Chaton
  module Config
    # docs/CONFIGURATION.md, made from the definitions of the options.
    module Manual
      # What comes before the options.
      HEAD = <<~TEXT
        # Configuration

        This page is made from the definitions in `lib/chaton/config/options/` by `rake docs`; change them, not it.

        ## Where settings come from

        1. the command line,
        2. else a file: the one of `-C FILE` or `CHATON_CONFIG`, else `config/chaton.rb`, else Puma's
           `config/puma/ENVIRONMENT.rb` or `config/puma.rb`, else none (`-C -` asks for none),
        3. else the environment,
        4. else the default.

        All errors are reported at once, with file, line and the nearest known name; then nothing is started and the
        exit status is 1. `chaton check` loads configuration and application, prints the plan that results and exits
        0 or 1; `chaton check --json` is for programs.

        ```ruby
        # config/chaton.rb
        workers web: 2, jobs: 1, streams: 1     # or 2: each does all that is on; 0, the default, is one process
        threads 1..32
        bind "tcp://127.0.0.1:9292"     # further binds add up
        pidfile "tmp/chaton.pid"
        log_format :json

        web do
          queue limit: 1024, age: 5.0   # also bytes: and retry_after:
          timeout 30.0                  # short for request_timeout_s
          body_bytes_max "64M"
          access_log :common
        end

        jobs do
          queues critical: 3, default: 1            # weighted; "critical", "default" is a strict order,
                                                    # random: %w[critical default] is no order at all
          store "redis://127.0.0.1:6379/0"          # for many machines; the default is a file of SQLite
          load "app/jobs"
          cron "nightly", "0 3 * * *", "CleanUp", zone: "Europe/Berlin"
        end

        streams do
          broker "kafka://127.0.0.1:9092"           # the default is a log of files on this machine
          kafka "socket.keepalive.enable" => true   # any property of librdkafka
          topic "events", EventsConsumer, group: "app", deserializer: :json, dead_letter: "events.dead"
          topic "orders", "Orders::Consumer", concurrency: 8, order: :key, retries: 3, dead_letter: "orders.dead"
          topic "audit", partitions: 12, settings: { "retention.ms" => 604_800_000 }  # only written
          load "app/consumers"
        end

        memory do
          limit "512M"                              # of one worker; above it it is replaced
          eden "64M"                                # or "2x": twice what is alive
        end

        on_worker_boot { |index| Metrics.connect(index) }
        ```

        The file is Ruby. A name ends in the unit of its value: `_s` seconds, `_ms` milliseconds, `_bytes_max` bytes,
        which may also be written `"64K"`, `"64M"` or `"1G"`. Where a rule says so, `0`, `false` and `nil` mean off.
        Relative paths start in the application's directory.

        Options marked *web* stand inside `web { }`, those marked *queue* are keywords of `queue` in it, those
        marked *command line* stand in no file. Those marked *jobs* stand inside `jobs { }`, those marked *streams* inside
        `streams { }`, those marked *topic* are keywords of `topic` in it, and those marked *memory* stand inside
        `memory { }`.

        ## Roles

        Web is on; jobs are where there is a `jobs { }`, streams where a topic of `streams { }` has a consumer. `workers 2`
        are two workers that do all of it, `workers web: 2, jobs: 1` three that do one thing each, `workers 0` is one process
        that does all. `--web`, `--jobs` and `--streams` choose: `chaton --jobs` runs jobs and nothing else, binds no address
        and needs no `config.ru`; with `workers web: 2, jobs: 1` it runs the one worker for jobs. `TTIN` adds a worker that
        does what the first one does.

        Where a `config/sidekiq.yml` is, it says what is set nowhere else: `concurrency`, `queues` (with weights, or
        `strict`), `timeout`, `max_retries`, `labels` and `require`, with ERB and a section for each environment; and
        `REDIS_URL` (or what `REDIS_PROVIDER` names) is the store. Other keys are named at the start.
      TEXT

      # What the table of a topic's keywords needs to be said before.
      TOPICS = <<~TEXT
        `topic NAME, CLASS, …` says who reads a topic: a subclass of `Chaton::Consumer`, as a constant (which the
        application may define later), a String or a Symbol. Without a class the topic is only declared: it is written to,
        and `chaton streams apply` creates it. Topics with the same `group` are read by one group, whose `start` and
        `protocol` they share.

      TEXT

      # Head of their table.
      HOOKS = <<~TEXT
        ## HookNames

        Blocks that are run at moments of a process's life; several of the same name run in their order. A hook that
        raises ends its process with a message that names its line.

        | hook | when |
        |---|---|
      TEXT

      # The hook that answers.
      ERROR_HANDLER = <<~TEXT
        `lowlevel_error_handler { |error, env, status| [500, {}, ["sorry"]] }` answers a request whose application
        raised; it takes up to three arguments.

      TEXT

      # What a file of Puma means here.
      PUMA = <<~TEXT
        ## A config/puma.rb

        It is read as it is where there is no `config/chaton.rb`; the one `rails new` writes needs no change. `bind`,
        `port`, `threads`, `workers`, `preload_app!`, `environment`, `pidfile`, `stdout_redirect`, `rackup`, `tag`,
        `directory`, the hooks above and the lines named in the tables mean what they mean there. What differs:

        - with workers, the application is preloaded unless the file says `preload_app! false`;
        - `worker_timeout` ends only workers in which no Ruby code can run, never a busy one;
        - `threads 5, 5` sets bounds between which the pool sizes itself; a higher maximum costs nothing.

        These lines are accepted and have no effect; the log says so at the start:

        | line | why |
        |---|---|
      TEXT

      # Head of the table of refused lines.
      REFUSED = <<~TEXT
        These are refused:

        | line | instead |
        |---|---|
      TEXT

      # @return [String] the page
      def self.text
        chapters = Options::GROUPS.map { |group, title| "## #{title}\n\n#{TOPICS if group == :topic}#{table(group)}" }
        [HEAD, *chapters, "#{HOOKS}#{hooks}", ERROR_HANDLER.chomp, "#{PUMA}#{accepted}",
         "#{REFUSED}#{refused}"].join("\n")
      end

      def self.table(group)
        rows = Options::ALL.select { |option| option.group == group }.map { |option| row(option) }
        "| option | default | value | what it does |\n|---|---|---|---|\n#{rows.join}"
      end

      def self.row(option)
        cells = ["`#{option.name}`#{marks(option)}", code(option.default_shown), option.type.rule,
                 [option.says, *others(option)].join(" ")]
        "| #{cells.map { |cell| cell.gsub("|", "\\|") }.join(" | ")} |\n"
      end

      def self.marks(option)
        case option.scope
        when :web, :jobs, :streams, :memory then " *#{option.scope}*"
        when :queue, :topic then " *#{option.scope}* `#{option.key}:`"
        when :cli then " *command line*"
        else ""
        end
      end

      # The other ways to set it.
      def self.others(option)
        flags = option.flags.map { |flag| "`#{flag}`" }.join(", ")
        ["Flag: #{flags}.", list("Also", option.also), list("Environment", option.env), list("Puma", option.puma)]
          .drop(flags.empty? ? 1 : 0).compact
      end

      def self.list(title, names)
        "#{title}: #{names.map { |name| "`#{name}`" }.join(", ")}." unless names.empty?
      end

      def self.code(text) = text.match?(%r{\A[\w:./-]+( [KMG]iB)?\z}) ? "`#{text}`" : text

      def self.hooks
        HookNames::ALL.map do |hook|
          names = [hook.name, *hook.puma].map { |name| "`#{name}`" }
          "| #{names.join(", ")} | #{hook.says} |\n"
        end.join
      end

      def self.accepted
        plugins = PumaLines::PLUGINS.map { |name, why| "| `plugin :#{name}` | #{why} |\n" }
        [*PumaLines::ACCEPTED.map { |name, why| "| `#{name}` | #{why} |\n" }, *plugins].join
      end

      def self.refused
        only = PumaLines::ONLY.map { |name, (value, why)| "| `#{name}`, but for `#{value.inspect}` | #{why} |\n" }
        plugins = PumaLines::REFUSED_PLUGINS.map { |name, why| "| `plugin :#{name}` | #{why} |\n" }
        [*PumaLines::REFUSED.map { |name, why| "| `#{name}` | #{why} |\n" }, *only, *plugins,
         "| `plugin`, any other | #{PumaLines::NO_PLUGIN} |\n"].join
      end
      private_class_method :table, :row, :marks, :others, :list, :code, :hooks, :accepted, :refused
    end
  end
end
