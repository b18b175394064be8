# frozen_string_literal: true

require "chaton/native"

# Makes docs/METRICS.md from a scrape that has all metrics.
module MetricsPage
  # The text before the list.
  HEAD = <<~TEXT
    # Metrics

    The admin endpoint serves metrics for Prometheus at `/metrics`, as OpenMetrics text, and sends the same to a StatsD server if one is set:

    ```ruby
    # config/chaton.rb
    admin { bind "tcp://127.0.0.1:9394" }
    ```
    ```console
    $ curl -s 127.0.0.1:9394/metrics | grep '^chaton_jobs_total'
    chaton_jobs_total{class="HardJob",queue="default",result="done"} 42
    ```

    On an address of the loopback and on a Unix socket of mode 0600 everyone who reaches it may read them. Elsewhere they need the token of
    `admin { token "…" }` or `CHATON_ADMIN_TOKEN`, in the header `Authorization: Bearer TOKEN`.

    - Counters count since the server started; the death or restart of a worker does not reset them. Those with the label `worker` begin
      again with each worker.
    - At most 200 pairs of job class and queue, and of topic and group, have series of their own; the others are counted together as
      `other`, for which no age of the lag is known.
    - Resident memory is of the moment of the scrape, the proportional and private figures are up to 15 s old.
    - No metric holds arguments of jobs, addresses of stores or messages of errors.

    `admin { statsd "udp://127.0.0.1:8125" }` sends them every 10 seconds, in datagrams of at most 1432 bytes, also without a `bind`.
    `chaton_jobs_total{class="HardJob"}` becomes `chaton.jobs.class.HardJob`, or with `statsd_tags true` `chaton.jobs` with the tag
    `class:HardJob`. Counters are sent as what has come since the last time, histograms as the counters `….count` and `….sum`.

    [examples/metrics](../examples/metrics/README.md) has a configuration of Prometheus, alert rules and a dashboard for Grafana.
    `rake docs` makes this page.

    | metric | type | labels | what it is |
    |---|---|---|---|
  TEXT

  module_function

  # @return [String] the page
  def text(scrape = Chaton::Native::Admin.sample_metrics)
    families = scrape.scan(/^# HELP (\S+) (.*?)\.?$/)
    "#{HEAD}#{families.map { |name, help| row(scrape, name, help) }.join}"
  end

  def row(scrape, name, help)
    type = scrape[/^# TYPE #{name} (\w+)$/, 1]
    labels = labels(scrape, name).map { |label, values| values.empty? ? "`#{label}`" : "`#{label}` (#{values})" }
    "| `#{name}#{"_total" if type == "counter"}` | #{type} | #{labels.join("; ")} | #{help} |\n"
  end

  # The labels of a metric with the values that it may have; numbers and names of the application are left out.
  def labels(scrape, name)
    lines = scrape.scan(/^#{name}(?:_total|_count)?\{(.*)\} /).flatten
    pairs = lines.flat_map { |text| text.scan(/(\w+)="([^"]*)"/) }.uniq
    pairs.group_by(&:first).except("le").transform_values do |found|
      found.map(&:last).grep_v(/\A\d+\z|HardJob|default|events|app\z/).join(", ")
    end
  end
end
