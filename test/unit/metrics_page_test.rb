# frozen_string_literal: true

require "test_helper"
require "yaml"
require "support/open_metrics"
require_relative "../../rakelib/support/metrics_page"

# docs/METRICS.md, and the files in examples/metrics, against the metrics that exist.
class MetricsPageTest < Minitest::Test
  EXAMPLES = File.expand_path("../../examples/metrics", __dir__)

  def scrape = @scrape ||= Chaton::Native::Admin.sample_metrics

  def test_the_page_is_generated
    assert_equal MetricsPage.text, File.read(File.expand_path("../../docs/METRICS.md", __dir__)), "run `rake docs`"
  end

  def test_each_metric_is_described_with_its_labels
    metrics = OpenMetrics.new(scrape)
    rows = MetricsPage.text.scan(/^\| `(chaton_\w+)` \| (\w+) \| (.*?) \| (.+) \|$/)
    assert_equal metrics.types.size, rows.size
    assert_includes rows, ["chaton_requests_shed_total", "counter", "",
                           "Requests answered 503 because the queue was full or too old"]
    jobs = rows.assoc("chaton_jobs_total")
    assert_equal "`class`; `queue`; `result` (done, failed)", jobs[2]
  end

  def test_the_examples_use_metrics_that_exist
    known = OpenMetrics.new(scrape).samples.keys.map(&:first).uniq
    %w[alerts.yml dashboard.json].each do |file|
      used = File.read(File.join(EXAMPLES, file)).scan(/\bchaton_\w+/).uniq
      assert_operator used.size, :>, 5
      assert_empty used - known, file
    end
  end

  # Where promtool is installed it reads the rules, and tries those of jobs with figures over time.
  def test_prometheus_accepts_the_rules
    path = File.join(EXAMPLES, "alerts.yml")
    rules = YAML.safe_load_file(path).dig("groups", 0, "rules")
    assert_operator rules.size, :>=, 5
    assert_equal %w[critical warning], rules.map { |rule| rule.dig("labels", "severity") }.uniq.sort
    tool = ENV.fetch("PATH").split(":").map { |folder| File.join(folder, "promtool") }.find { |one| File.file?(one) }
    return unless tool

    assert system(tool, "check", "rules", path, out: File::NULL)
    assert system(tool, "test", "rules", File.expand_path("../support/alerts_test.yml", __dir__), out: File::NULL)
  end

  # The time that started jobs have waited says nothing while none starts.
  def test_the_alert_of_waiting_jobs_reads_the_jobs_that_wait
    rule = YAML.safe_load_file(File.join(EXAMPLES, "alerts.yml")).dig("groups", 0, "rules")
      .find { |one| one["alert"] == "ChatonJobsWait" }
    assert_equal "max by (queue) (chaton_job_queue_latency_seconds) > 30", rule["expr"]
  end
end
