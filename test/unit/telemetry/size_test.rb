# frozen_string_literal: true

require "test_helper"
require "chaton/telemetry/size"

class SizeTest < Minitest::Test
  CASES = { nil => "-", 0 => "0 B", 9 => "9 B", 1023 => "1023 B", 1024 => "1.0 KiB", 10_240 => "10 KiB",
            87_031_808 => "83 MiB", 9 << 20 => "9.0 MiB", 1_503_238_554 => "1.4 GiB", 1 << 62 => "4194304 TiB" }.freeze

  def test_the_unit_fits_the_amount
    assert_equal CASES, CASES.to_h { |bytes, _| [bytes, Chaton::Telemetry::Size.of(bytes)] }
  end
end
