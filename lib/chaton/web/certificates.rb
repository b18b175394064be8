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
        # @param tls [Config::BindTls]
        # @raise [ConfigError] naming the file; then what was read before stays
        def keep(tls)
          Native::Web.check_tls(tls.document)
          @kept[tls] = tls.read
        rescue SystemCallError => e
          raise ConfigError, e.message
        end

        # @return [Array<String>] a sentence for each key that every user of the machine may read
        def warnings(tls)
          keys = tls.certificates.map(&:last).uniq.select { |key| File.stat(key).mode.anybits?(0o004) }
          keys.map { |key| "key #{key}: every user of this machine may read it; run chmod o= on it if others use it" }
        rescue SystemCallError
          []
        end

        # @return [String] as the native extension takes it
        def document(tls) = tls.document(@kept.fetch(tls, []))
      end
    end
  end
end
