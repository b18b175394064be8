# frozen_string_literal: true

require "etc"
require_relative "memory/allocator"
require_relative "native_library"
require_relative "ruby_release"

module Chaton
  # Whether threads that take turns at Ruby's lock can be bound to one core here (docs/decisions/057).
  module CpuAffinity
    # Preloaded, it frees bound threads before they start a thread or a program (ext/chaton/before_start.c).
    LIBRARY = "libchaton_before_start.so"

    # @return [String, nil] path of {LIBRARY}, if threads of this plan may be bound
    def self.library(plan) = plan.cpu_affinity && !refusal ? NativeLibrary.built(LIBRARY) : nil

    # @return [String, nil] why no thread can be bound
    def self.refusal
      return "Ruby #{RUBY_VERSION} does not tell which thread has its lock, as 3.3 does" unless RubyRelease.gvl_events?
      return "the server may run on one core only" if Etc.nprocessors == 1

      path = NativeLibrary.built(LIBRARY)
      return "#{LIBRARY} was not built with the native extension" unless path

      failure = Memory::PreloadCheck.failure({ "LD_PRELOAD" => path })
      "#{path} cannot be preloaded: #{failure}" if failure
    end
  end
end
