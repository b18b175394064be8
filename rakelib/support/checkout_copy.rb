# frozen_string_literal: true

require "fileutils"

# Copies a checkout into another folder. cargo compiles files anew whose time is later than its last build, so a file
# that has not changed is not touched, and one that has changed gets the time of the copy: checkouts of several ages may
# be copied to the same place.
class CheckoutCopy
  # What the tests and the build leave in the copy for their next run.
  KEPT = ["tmp/test_times.json", "tmp/extension", "lib/chaton/*.so"].freeze

  # @param from [String] folder of the checkout
  # @param to [String]
  def initialize(from, to)
    @from = from
    @to = to
  end

  # @param names [Array<String>] files of the checkout; those that do not exist are left out
  def call(names)
    names = names.select { |name| File.exist?(File.join(@from, name)) }
    FileUtils.mkdir_p(@to)
    remove_others(names)
    names.each { |name| copy(name) }
  end

  private

  def remove_others(names)
    kept = names + KEPT.flat_map { |glob| Dir.glob(glob, base: @to) }
    folders, files = (Dir.glob("**/*", File::FNM_DOTMATCH, base: @to) - ["."]).partition { |name| folder?(name) }
    (files - kept).each { |name| File.delete(under(name)) }
    # The deepest first.
    folders.sort.reverse_each { |name| Dir.rmdir(under(name)) if Dir.empty?(under(name)) }
  end

  def folder?(name) = File.directory?(under(name)) && !File.symlink?(under(name))

  def copy(name)
    source = File.join(@from, name)
    return if same?(source, under(name))
    FileUtils.mkdir_p(File.dirname(under(name)))
    FileUtils.rm_f(under(name))
    FileUtils.copy_entry(source, under(name))
  end

  def same?(source, target)
    return false unless File.exist?(target) && File.ftype(source) == File.ftype(target)
    return File.readlink(source) == File.readlink(target) if File.symlink?(source)
    File.stat(source).mode == File.stat(target).mode && FileUtils.identical?(source, target)
  end

  def under(name) = File.join(@to, name)
end
