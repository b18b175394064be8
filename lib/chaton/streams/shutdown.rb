# frozen_string_literal: true

require_relative "../shutdown"

module Chaton
  module Streams
    # Raised in a consumer when its worker has to stop at once: records that are not marked are consumed again by
    # another worker.
    class Shutdown < Chaton::Shutdown
    end
  end
end
