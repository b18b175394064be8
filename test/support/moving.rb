# frozen_string_literal: true

# Moves the objects of this process, as a compaction would.
module Moving
  OPTIONS = { toward: :empty }.freeze

  module_function

  # Moves as many objects as can be moved: compaction alone moves those that have a gap before them. Ruby then checks
  # that nothing refers to where one of them was.
  #
  # @return [void]
  def move
    GC.respond_to?(:verify_compaction_references) ? GC.verify_compaction_references(**OPTIONS) : GC.start
  rescue NotImplementedError
    GC.start
  end

  # Ruby moves objects at each full collection meanwhile.
  #
  # @return [Object] what the block returns
  def moving
    can = GC.respond_to?(:auto_compact=)
    GC.auto_compact = true if can
    yield
  rescue NotImplementedError
    yield
  ensure
    GC.auto_compact = false if can && GC.auto_compact
  end
end
