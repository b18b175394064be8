# frozen_string_literal: true

require_relative "../../lib/chaton/config/hook_names"
require_relative "../../lib/chaton/config/options"
require_relative "../../lib/chaton/config/puma_lines"

module Chaton
  module Config
    # Makes docs/CONFIGURATION.md from the definitions of the options.
    module Manual
      # The text before the options.
      HEAD = <<~TEXT
        # Configuration

        All configuration is optional: without any, `chaton` serves `config.ru` on port 9292. Settings are written as Ruby in
        `config/chaton.rb`, given on the command line, or taken from the environment. `rake docs` generates this page from
        the definitions in `lib/chaton/config/options/`.

        ## Where settings come from

        Each source overrides those after it:

        1. the command line,
        2. a file: that of `-C FILE` or `CHATON_CONFIG`, else `config/chaton.rb`, else Puma's
           `config/puma/ENVIRONMENT.rb` or `config/puma.rb` (`-C -` for none),
        3. the environment,
        4. the default.

        All mistakes are reported together, with file, line and the nearest known name; then nothing is started and the
        exit status is 1. `chaton check` loads configuration and application, prints the settings that differ from their
        default (`--all`: all) and exits with 0 or 1; `chaton check --json` is for programs.

        ```ruby
        # config/chaton.rb
        workers web: 2, jobs: 1, streams: 1     # or 2: each has all roles; 0, the default: one process
        threads 1..32
        bind "tcp://127.0.0.1:9292"     # may be repeated
        pidfile "tmp/chaton.pid"
        log_format :json

        web do
          queue limit: 1024, age: 5.0
          request_timeout_s 60.0
          body_bytes_max "64M"
          access_log :common
        end

        jobs do
          queues critical: 3, default: 1            # weighted; "critical", "default" is a strict order,
                                                    # random: %w[critical default] is a random one
          store "redis://127.0.0.1:6379/0"          # for several machines; the default is a SQLite file
          load "app/jobs"
          cron "nightly", "0 3 * * *", "CleanUp", zone: "Europe/Berlin"
        end

        streams do
          broker "kafka://127.0.0.1:9092"           # the default is a log in files on this machine
          kafka "socket.keepalive.enable" => true   # any property of librdkafka
          topic "events", EventsConsumer, group: "app", deserializer: :json, dead_letter: "events.dead"
          topic "orders", "Orders::Consumer", concurrency: 8, order: :key, retries: 3, dead_letter: "orders.dead"
          topic "audit", partitions: 12, settings: { "retention.ms" => 604_800_000 }  # only written
          load "app/consumers"
        end

        memory do
          limit "512M"                              # of one worker; above it the worker is replaced
          eden "64M"                                # or "2x": twice the memory that is alive
        end

        admin do
          bind "tcp://127.0.0.1:9394"               # /live and /ready for load balancers, see docs/HEALTH.md
        end

        traces do
          endpoint "http://127.0.0.1:4318"          # spans of requests, jobs and records, see docs/TRACES.md
          sample 0.01
        end

        on_worker_boot { |index| Metrics.connect(index) }
        ```

        - A name ends in the unit of its value: `_s` seconds, `_ms` milliseconds, `_bytes_max` bytes, which may also be
          written `"64K"`, `"64M"` or `"1G"`. `_s` may be left out: `lease 30` is `lease_s 30`.
        - If the table says so, `0`, `false` and `nil` mean off.
        - Relative paths start in the application's directory.
        - Options marked *web*, *jobs*, *streams*, *live*, *memory*, *admin* or *traces* belong inside the block of that name. Those
          marked *queue* are keywords of `queue` inside `web { }`, those marked *topic* keywords of `topic` inside `streams { }`. Those marked
          *command line* cannot be set in a file.

        ## Roles

        Web is on by default, jobs with a `jobs { }`, streams if a topic of `streams { }` has a consumer. `workers 2` are two
        workers with all roles, `workers web: 2, jobs: 1` three workers with one role each, and `workers 0` is one process
        with all roles. `--web`, `--jobs` and `--streams` select roles: `chaton --jobs` runs only jobs, binds no address and
        needs no `config.ru`; with `workers web: 2, jobs: 1` it runs the one worker for jobs. `TTIN` adds a worker with the
        roles of the first one.

        A `config/sidekiq.yml` sets what is set nowhere else: `concurrency`, `queues` (with weights, or `strict`),
        `timeout`, `max_retries`, `labels` and `require`, with ERB and a section for each environment; and `REDIS_URL` (or the
        variable that `REDIS_PROVIDER` names) sets the store. Other keys are named in notes at the start.
      TEXT

      # Introduction to the table of a topic's keywords.
      TOPICS = <<~TEXT
        `topic NAME, CLASS, …` names the consumer of a topic: a subclass of `Chaton::Consumer`, as a constant (which the
        application may define later), a String or a Symbol. Without a class the topic is only declared, so that it can be
        written to, and `chaton streams apply` creates it. Topics with the same `group` are read by one group and must have
        the same `start` and `protocol`.

      TEXT

      # Introduction to the table of hooks.
      HOOKS = <<~TEXT
        ## Hooks

        Hooks are blocks that run at moments of a process's life; several of the same name run in order. A hook that raises
        ends its process with a message that names its line.

        | hook | when |
        |---|---|
      TEXT

      # Commands beside the server.
      SERVICES = <<~TEXT
        ## Services

        ```ruby
        service "css", "bin/rails tailwindcss:watch", only: :development
        service "queue", %w[bin/jobs start], except: %i[development test]
        ```

        A `service` is a command that runs beside the server, in the environments that `only:` and `except:` name. It starts
        when the application is loaded and ends with the server: after TERM it has 5 seconds, then its process group is
        killed. If the server is killed, the kernel sends TERM to the command, and its standard input ends. A command that ends
        or cannot be started is started again, after pauses that grow from 0.5 to 30 seconds; it never
        stops the server. A phased restart starts it again with the new code. Its output becomes lines of the server's log
        (level info) with its name before them; lines above 4,096 bytes are split. `chaton status` lists services. A String
        with characters of the shell is run by `/bin/sh -c`; an Array of words is not.

      TEXT

      # The hook that warms a worker up.
      WARM_UP = <<~TEXT
        `warm_up { |client| 30.times { client.get "/posts", headers: { "Host" => "example.com" } } }` fills caches before
        workers are forked, at the first start and in a phased restart; YJIT compiles a method in its 30th call.
        The client returns the status, or nil if the application raised.

      TEXT

      # The hook for errors.
      ERROR_HANDLER = <<~TEXT
        `lowlevel_error_handler { |error, env, status| [500, {}, ["sorry"]] }` answers a request whose application
        raised; it takes up to three arguments.

      TEXT

      # About a Puma file.
      PUMA = <<~TEXT
        ## A config/puma.rb

        It is read if there is no `config/chaton.rb`; the file that `rails new` writes needs no change. `bind`,
        `port`, `threads`, `workers`, `preload_app!`, `environment`, `pidfile`, `stdout_redirect`, `rackup`, `tag`,
        `directory`, the hooks above and the lines named in the tables mean the same as in Puma. Differences:

        - with workers, the application is preloaded unless the file says `preload_app! false`;
        - `worker_timeout` kills only workers in which no Ruby code can run, never busy ones;
        - `threads 5, 5` are bounds within which the pool sizes itself; a higher maximum costs nothing;
        - `plugin :tmp_restart` is `restart_file "tmp/restart.txt"`: `bin/rails restart` loads the new code worker by worker;
        - `plugin :solid_queue` and `plugin :tailwindcss` run their command as a service, if the bundle has the gem.

        These lines are accepted and have no effect, which the log notes at the start:

        | line | why |
        |---|---|
      TEXT

      # Introduction to the table of refused lines.
      REFUSED = <<~TEXT
        These are refused:

        | line | instead |
        |---|---|
      TEXT

      # @return [String] the page
      def self.text
        chapters = Options::GROUPS.map { |group, title| "## #{title}\n\n#{TOPICS if group == :topic}#{table(group)}" }
        [HEAD, *chapters, "#{HOOKS}#{hooks}", WARM_UP.chomp, ERROR_HANDLER.chomp, SERVICES.chomp, "#{PUMA}#{accepted}",
         "#{REFUSED}#{refused}"].join("\n")
      end

      def self.table(group)
        rows = Options::ALL.select { |option| option.group == group }.map { |option| row(option) }
        "| option | default | value | what it does |\n|---|---|---|---|\n#{rows.join}#{further(group)}"
      end

      # Options of other chapters that exist here too.
      def self.further(group)
        names = (Options::EVERYWHERE - Options::ALL).select { |option| option.group == group }
        names.empty? ? "" : "\nAlso #{names.map { |option| "`#{option.written}`" }.join(", ")}, see above.\n"
      end

      def self.row(option)
        cells = ["`#{option.written}`#{marks(option)}", code(option.default_shown), option.type.rule,
                 [option.says, *others(option)].join(" ")]
        "| #{cells.map { |cell| cell.gsub("|", "\\|") }.join(" | ")} |\n"
      end

      def self.marks(option)
        case option.scope
        when :web, :jobs, :streams, :live, :memory, :admin, :traces
          " #{[option.scope, *option.elsewhere.keys].map { |scope| "*#{scope}*" }.join(", ")}"
        when :queue, :topic then ": *#{option.scope}*"
        when :cli then " *command line*"
        else ""
        end
      end

      # The other ways to set it.
      def self.others(option)
        flags = option.flags.map { |flag| "`#{flag}`" }.join(", ")
        variables = option.everywhere.flat_map(&:env).uniq
        ["Flag: #{flags}.", list("Environment", variables), list("Puma", option.puma)]
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
        only = PumaLines::ONLY.map { |name, (value, why)| "| `#{name}`, except `#{value.inspect}` | #{why} |\n" }
        [*PumaLines::REFUSED.map { |name, why| "| `#{name}` | #{why} |\n" }, *only,
         "| `plugin`, any other | #{PumaLines::NO_PLUGIN} |\n"].join
      end
      private_class_method :table, :further, :row, :marks, :others, :list, :code, :hooks, :accepted, :refused
    end
  end
end
