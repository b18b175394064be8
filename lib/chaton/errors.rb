# frozen_string_literal: true

# The errors, split by what the caller should do about them.
module Chaton
  # The base of all errors that Chaton raises.
  class Error < StandardError; end

  # The settings are wrong: correct the configuration. Nothing was started.
  class ConfigError < Error; end

  # The application could not be loaded: correct the file that the message names; {#cause} is the original error.
  class AppLoadError < Error; end

  # An address cannot be listened on: stop the process that has it, or choose another address.
  class BindError < Error; end

  # A running server could not be reached, or refused the command.
  class ControlError < Error; end

  # The work already has its response; stop working on it.
  class ClosedError < Error; end

  # The client has disconnected; stop producing the response.
  class ClientGone < Error; end

  # The rest of a streamed request body (`stream_bodies`) will not arrive: the client left, is too slow, or broke the
  # rules. A handler of EOFError gets it, too.
  class RequestBodyError < EOFError; end

  # The application's response is not a Rack response, or has a header that cannot be sent.
  class ResponseError < Error; end

  # The job store failed; the subclasses tell what to do. Nothing was stored, except maybe with {StoreUnavailable}.
  class StoreError < Error; end

  # The store was not reached, the connection was lost, or it replied too late: try again. The last call may have
  # taken effect.
  class StoreUnavailable < StoreError; end

  # Memory or disk is full: make room. Nothing is added, and stored jobs are kept; a full Redis still delivers them, a
  # SQLite file may need room first.
  class StoreFull < StoreError; end

  # Another process held the store's lock for too long: try again.
  class StoreBusy < StoreError; end

  # The store's file, or a reply, is damaged: restore a backup.
  class StoreCorrupt < StoreError; end

  # The address, the password or a setting is wrong: correct the configuration.
  class StoreRefused < StoreError; end

  # The log of records failed; the subclasses tell what to do.
  class StreamError < Error; end

  # The log was not reached, or replied too late: try again. The last call may have taken effect.
  class StreamUnavailable < StreamError; end

  # The log refuses the call: correct address, credentials, rights or settings.
  class StreamRefused < StreamError; end

  # There is no such topic or partition: create it (`chaton streams apply`), or correct its name.
  class UnknownTopic < StreamError; end

  # There is no room on the disk, or in the buffer of records that wait to be written. Nothing was written; try later.
  class BufferFull < StreamError; end

  # The log is damaged; the message names the file or the partition, and the offset.
  class StreamCorrupt < StreamError; end

  # A newer member of the group, or a newer transaction, has replaced this one. Stop using it.
  class StreamFenced < StreamError; end

  # The record cannot be written: it is too large, or a part of it has the wrong type.
  class InvalidRecord < StreamError; end

  # The topic's deserializer cannot read the bytes of a record; the message names the record.
  class DeserializationError < Error; end

  # The object belongs to the parent process; make a new one in this process.
  class ForkedError < Error; end
end
