# frozen_string_literal: true

module Bench
  # Whether the measured processes, Chaton and its peers alike, run with Ruby's compiler: wherever this Ruby has it.
  # That of Ruby 3.1 is an experiment that nobody runs in production, so it stays off.
  YJIT = Object.const_defined?("RubyVM::YJIT") && Gem::Version.new(RUBY_VERSION) >= Gem::Version.new("3.2")
  # The variable survives Chaton's restarts of itself, unlike an option of the command.
  RUBYOPT = YJIT ? "--yjit" : nil
end
