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

  # The store of jobs could not do it; the subclasses say what to do about it. What was to be stored is not stored,
  # but for {StoreUnavailable}.
  class StoreError < Error; end

  # The store was not reached, was cut off or answered too late: try again. Whether the last call got through is not
  # known.
  class StoreUnavailable < StoreError; end

  # Memory or disk is full: make room. Nothing is added. What is stored is kept; a full Redis still gives it out, a
  # SQLite file may have to wait for room.
  class StoreFull < StoreError; end

  # Somebody else held the store's lock for too long: try again.
  class StoreBusy < StoreError; end

  # The store's file, or an answer of it, is damaged: restore a backup.
  class StoreCorrupt < StoreError; end

  # The address, the password or a setting is wrong: mend the configuration.
  class StoreRefused < StoreError; end

  # The log of records could not do it; the subclasses say what to do about it.
  class LogError < Error; end

  # The log was not reached, or answered too late: try again. Whether the last call got through is not known.
  class LogUnavailable < LogError; end

  # The log does not take what was asked: mend address, credentials, rights or settings.
  class LogRefused < LogError; end

  # There is no such topic or partition: create it (`chaton streams apply`), or mend its name.
  class UnknownTopic < LogError; end

  # There is no room: on the disk, or among the records that wait to be written. Nothing was taken; try again later.
  class BufferFull < LogError; end

  # What the log holds is damaged; the message names the file or the partition, and the offset.
  class LogCorrupt < LogError; end

  # Another one has taken this place: a newer member of the group, or a newer transaction. Let go of it.
  class LogFenced < LogError; end

  # The record cannot be written as it is: it is too large, or one of its parts is of the wrong kind.
  class InvalidRecord < LogError; end

  # The bytes of a record are not what its topic's deserializer reads; the message names the record.
  class DeserializationError < Error; end

  # The object belongs to the parent process; make a new one in this process.
  class ForkedError < Error; end
end
