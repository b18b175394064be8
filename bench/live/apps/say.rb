# frozen_string_literal: true

# Says messages from a process of its own, which goes on while workers are killed: `say.rb COUNT&STREAMS&RATE`.
require "chaton"
require_relative "speaker"

puts Speaker.new { |stream, text| Chaton.broadcast("s/#{stream}", text) }.say(ARGV.fetch(0))
