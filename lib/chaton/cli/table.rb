# frozen_string_literal: true

require_relative "../config/types"

module Chaton
  class CLI
    # Prints rows in aligned columns.
    module Table
      def self.text(head, rows)
        cells = [head, *rows.map { |row| row.map { |value| cell(value) } }]
        widths = cells.transpose.map { |column| column.map(&:length).max }
        numeric = head.each_index.map { |index| rows.any? && rows.all? { |row| row[index].is_a?(Numeric) } }
        cells.map do |row|
          aligned = row.each_with_index.map { |text, at| numeric[at] ? text.rjust(widths[at]) : text.ljust(widths[at]) }
          aligned.join("  ").rstrip
        end.join("\n")
      end

      # @return [String] one line
      def self.cell(value)
        case value
        when nil then "-"
        when true then "yes"
        when false then "no"
        when Numeric then Config::Types.thousands(value)
        when Time then value.strftime("%Y-%m-%d %H:%M:%S")
        else value.to_s.gsub(/[[:cntrl:]]/, " ")
        end
      end
    end
  end
end
