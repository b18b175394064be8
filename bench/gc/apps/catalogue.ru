# frozen_string_literal: true

require_relative "shop"
require_relative "../../support/gc_meter"

use Bench::GcMeter
run Shop.new
