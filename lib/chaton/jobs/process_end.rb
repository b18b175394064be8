# frozen_string_literal: true

module Chaton
  module Jobs
    # Runs blocks at the end of a process, also when that is `exit!`, which runs no `at_exit`.
    module ProcessEnd
      @blocks = []

      class << self
        # @yield at the end of this process, and of its forked children
        def run(&block)
          hook if @blocks.empty?
          @blocks << block
          at_exit(&block)
        end

        # @private
        def call = @blocks.each(&:call)

        private

        # `Object` has Kernel's private `exit!`; an included module comes before Kernel.
        def hook
          [::Process, ::Kernel].each { |receiver| receiver.singleton_class.prepend(Exit) }
          Object.include(Exit)
          Object.class_eval { private :exit! }
        end
      end

      # The three ways to write `exit!`.
      module Exit
        def exit!(...)
          ProcessEnd.call
        ensure
          super
        end
      end
    end
  end
end
