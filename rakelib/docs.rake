# frozen_string_literal: true

desc "Write docs/CONFIGURATION.md and docs/METRICS.md from what they describe"
task :docs do
  $LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
  require_relative "support/manual"
  File.write("docs/CONFIGURATION.md", Chaton::Config::Manual.text)
  require_relative "support/metrics_page"
  File.write("docs/METRICS.md", MetricsPage.text)
end
