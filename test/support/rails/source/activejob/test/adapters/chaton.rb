# frozen_string_literal: true

require "active_job/queue_adapters/chaton_adapter"
require "chaton/testing"

Chaton::Testing.inline!
ActiveJob::Base.queue_adapter = :chaton
