# frozen_string_literal: true

require_relative "../errors"
require_relative "../native"

module Chaton
  module Web
    # The certificates of binds as this process has read them last. Workers inherit them: one that begins while the
    # files cannot be used serves with these.
    module Certificates
      @kept = {}

      class << self
        # Reads and checks the files of a bind.
        #
        # @raise [ConfigError] naming the file; then what was read before stays
        def keep(tls)
          stamps = tls.stamps
          Native::Web.check_tls(tls.document)
          texts = tls.files.map { |path| File.read(path) }
          # Files that were replaced between the check and now are read at the next look.
          @kept[tls] = [texts, stamps] if stamps == tls.stamps || !@kept.key?(tls)
        rescue SystemCallError => e
          raise ConfigError, e.message
        end

        # @return [Boolean] whether the files are as they were when they were kept
        def current?(tls) = @kept.fetch(tls, [])[1] == tls.stamps

        # @return [Array<String>] a sentence for each key that every user of the machine may read
        def warnings(tls)
          keys = tls.certificates.map(&:last).uniq.select { |key| File.stat(key).mode.anybits?(0o004) }
          keys.map { |key| "key #{key}: every user of this machine may read it; run chmod o= on it if others use it" }
        rescue SystemCallError
          []
        end

        # @return [String] as the native extension takes it
        def document(tls) = tls.document(@kept.dig(tls, 0) || [])
      end
    end
  end
end
