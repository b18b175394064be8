# frozen_string_literal: true

# Loaded through RUBYOPT into a program that `chaton run` started, before anything else: puts the environment back, so
# that what the program starts finds none of ours, and says at the end what the collector did. It requires nothing and
# defines nothing: the program's bundle may want other versions of anything, and its names are its own.
#
# CHATON_RUN is DESCRIPTOR:NAME,NAME…; CHATON_WAS_NAME is what a variable was before.
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
    # Bundler adds to it, and keeps a copy in which a word of its own stands for none; only ours is taken out.
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

  arrive = lambda do |*|
    # Once: later the variables are the program's own.
    untrace_var(:$0, arrive)
    restore.call(ENV)
    copy = defined?(Bundler::ORIGINAL_ENV) && Bundler::ORIGINAL_ENV
    restore.call(copy) if copy && !copy.frozen?
    pipe.close_on_exec = true if pipe
  end
  # `bundle exec` goes on as the program, for which it sets the title, or executes it, which then needs the variables.
  File.basename($PROGRAM_NAME).match?(/\Abundler?[\d.]*\z/) ? trace_var(:$0, arrive) : arrive.call
  next unless pipe

  pid = Process.pid
  at_exit do
    # A forked child has inherited this block, and a daemon may have closed what was open.
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
    # Nobody is left to be told.
  end
end.call
