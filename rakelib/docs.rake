# frozen_string_literal: true

desc "Write docs/CONFIGURATION.md, docs/METRICS.md and crates/default_settings.json from what they describe"
task :docs do
  $LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
  require_relative "support/manual"
  File.write("docs/CONFIGURATION.md", Chaton::Config::Manual.text)
  require_relative "support/default_settings"
  File.write("crates/default_settings.json", Chaton::Config::DefaultSettings.text)
  require_relative "support/metrics_page"
  File.write("docs/METRICS.md", MetricsPage.text)
end
