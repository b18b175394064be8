# frozen_string_literal: true

# Loaded through RUBYOPT into a program of `chaton run` before anything else. Restores the environment, so that
# subprocesses do not inherit our variables, and writes the collector's figures to a pipe when the program ends. It
# requires no library and defines no name, so that it cannot conflict with the program.
#
# CHATON_RUN is DESCRIPTOR:NAME,NAME…; CHATON_WAS_NAME is the previous value of a variable.
lambda do
  descriptor, names = ENV["CHATON_RUN"].to_s.split(":", 2)
  next unless names

  option = "-r#{File.expand_path(__FILE__)}"
  restore = lambda do |env|
    env.delete("CHATON_RUN")
    names.split(",").each do |name|
      was = env.delete("CHATON_WAS_#{name}")
      was ? env[name] = was : env.delete(name)
    end
    # Only our option is removed: Bundler adds its own, and keeps a copy in which a placeholder stands for an unset one.
    none = "BUNDLER_ENVIRONMENT_PRESERVER_INTENTIONALLY_NIL"
    { "RUBYOPT" => nil, "BUNDLER_ORIG_RUBYOPT" => none }.each do |name, empty|
      next unless env[name].to_s.include?(option)

      left = env[name].sub(option, "").strip
      left = empty if left.empty?
      left ? env[name] = left : env.delete(name)
    end
  end

  begin
    pipe = IO.for_fd(Integer(descriptor), "w")
    pipe.autoclose = false
    identity = [pipe.stat.dev, pipe.stat.ino]
  rescue SystemCallError, ArgumentError
    # The program before this one closed it.
    pipe = nil
  end

  restore_once = lambda do |*|
    untrace_var(:$0, restore_once)
    restore.call(ENV)
    copy = defined?(Bundler::ORIGINAL_ENV) && Bundler::ORIGINAL_ENV
    restore.call(copy) if copy && !copy.frozen?
    pipe.close_on_exec = true if pipe
  end
  # `bundle exec` either becomes the program, and then sets the title, or executes it with these variables.
  File.basename($PROGRAM_NAME).match?(/\Abundler?[\d.]*\z/) ? trace_var(:$0, restore_once) : restore_once.call
  next unless pipe

  pid = Process.pid
  at_exit do
    # A forked child inherits this block, and a daemon may have closed the pipe.
    next unless pid == Process.pid && identity == [pipe.stat.dev, pipe.stat.ino]

    stat = GC.stat
    time_ns = GC.respond_to?(:total_time) ? GC.total_time : 0
    pools = GC.respond_to?(:stat_heap) ? GC.stat_heap.values : []
    pools = pools.map do |pool|
      live = pool[:heap_live_slots] || (pool[:total_allocated_objects].to_i - pool[:total_freed_objects].to_i)
      "#{pool[:slot_size]}/#{live}"
    end
    peak = File.read("/proc/self/status")[/VmHWM:\s+(\d+)/, 1] if File.exist?("/proc/self/status")
    pipe.write_nonblock("pid=#{pid} ruby=#{RUBY_VERSION} collections=#{stat[:count]} full=#{stat[:major_gc_count]} " \
                        "time_ns=#{time_ns} live=#{stat[:heap_live_slots]} old=#{stat[:old_objects]} " \
                        "peak_kib=#{peak} pools=#{pools.join(",")}\n")
  rescue SystemCallError, IOError
    # `chaton run` has ended.
  end
end.call
