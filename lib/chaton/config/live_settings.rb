# frozen_string_literal: true

require "json"
require_relative "options"
require_relative "store_address"

module Chaton
  module Config
    # Settings of event streams. Each field is an option of `live { }`, see docs/CONFIGURATION.md; `drain_s` is the time
    # over which a worker that stops closes its streams.
    LiveSettings = Struct.new(*Options.names(:live), :drain_s, keyword_init: true) do
      # @return [String] path of the log
      def file = StoreAddress.file(live_store)

      # @return [String] JSON, as the native extension takes it
      def document
        JSON.generate({ path: file, **Options.document(:live, self), drain_s: drain_s })
      end
    end
  end
end
