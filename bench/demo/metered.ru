# frozen_string_literal: true

require_relative "../support/gc_meter"

use Bench::GcMeter
app, = Rack::Builder.parse_file(File.expand_path("../../examples/all_in_one/config.ru", __dir__))
run app
