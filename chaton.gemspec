# frozen_string_literal: true

require_relative "lib/chaton/version"

Gem::Specification.new do |spec|
  spec.name = "chaton"
  spec.version = Chaton::VERSION
  spec.summary = "A Ruby application server with its IO in Rust"
  spec.description = "Serves Rack applications with sockets, parsing and timers in Rust threads that " \
                     "never take Ruby's global lock, and a pool of Ruby threads that sizes itself."
  spec.authors = ["the Chaton authors"]
  spec.license = "MIT"
  spec.homepage = "https://github.com/chaton-rb/chaton"
  spec.metadata = {
    "rubygems_mfa_required" => "true",
    "source_code_uri" => spec.homepage,
    "documentation_uri" => "#{spec.homepage}/tree/main/docs",
    "bug_tracker_uri" => "#{spec.homepage}/issues",
    "changelog_uri" => "#{spec.homepage}/blob/main/CHANGELOG.md"
  }

  spec.required_ruby_version = ">= 3.1"
  spec.add_dependency "logger", ">= 1.4"
  spec.add_dependency "rack", ">= 2.2", "< 4"

  # From the directory, not from git: the gem also builds from an unpacked archive.
  spec.files = Dir.chdir(__dir__) do
    Dir["{lib,sig,exe}/**/*", "ext/**/*.{c,rb,rs,toml,md}", "crates/*/Cargo.toml", "crates/*/src/**/*", "docs/*.md",
        "Cargo.{toml,lock}", "README.md", "CHANGELOG.md", "LICENSE"]
      .select { |path| File.file?(path) }
      .reject { |path| path.end_with?(".so", ".bundle", "docs/BENCHMARKS.md") }
  end
  spec.bindir = "exe"
  spec.executables = ["chaton"]
  spec.extensions = ["ext/chaton/extconf.rb"]
end
