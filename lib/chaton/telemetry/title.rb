# frozen_string_literal: true

require_relative "../version"

module Chaton
  module Telemetry
    # The titles of Chaton's processes in `ps`.
    module Title
      # Longer titles are not shown by ps and only use memory.
      LENGTH_MAX = 200

      module_function

      # @param tag [String, nil] the application's name
      # @param listen [Array<String>] addresses
      # @return [String] the title that was set
      def supervisor(tag:, listen:)
        set("chaton #{VERSION} supervisor", tag, listen)
      end

      # @param roles [Array<Symbol>] what it does
      def single(roles:, tag:, listen:)
        set("chaton #{VERSION} #{roles.join("+")}", tag, listen)
      end

      # @param index [Integer] number of the worker
      # @param generation [Integer] 0 is the code loaded at boot
      def worker(index:, roles:, generation:, tag:)
        set("chaton worker #{index} #{roles.join("+")}#{of(generation)}", tag, [])
      end

      # @return [String]
      def preloader(generation:, tag:)
        set("chaton preloader#{of(generation)}", tag, [])
      end

      def of(generation) = (" generation #{generation}" if generation.positive?)

      def set(head, tag, listen)
        title = [head, tag && !tag.empty? ? "[#{tag}]" : nil, *listen].compact.join(" ")
        Process.setproctitle(title[0, LENGTH_MAX])
      end
      private_class_method :of, :set
    end
  end
end
