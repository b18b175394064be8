# frozen_string_literal: true

# The errors, split by what the caller should do about them.
module Chaton
  # Everything Chaton raises of its own accord.
  class Error < StandardError; end

  # The settings are wrong: mend the configuration, nothing was started.
  class ConfigError < Error; end

  # The application could not be loaded: mend the file it names; {#cause} is what was raised there.
  class AppLoadError < Error; end

  # An address cannot be listened on: stop who has it, or choose another.
  class BindError < Error; end

  # A running server could not be reached, or refused the command.
  class ControlError < Error; end

  # The unit of work has been answered already; there is nothing to do but to let go of it.
  class ClosedError < Error; end

  # The client has left; stop producing the answer.
  class ClientGone < Error; end

  # What the application answered is no Rack response, or holds a header that cannot be sent.
  class ResponseError < Error; end

  # The object belongs to the parent process; make a new one in this process.
  class ForkedError < Error; end
end
