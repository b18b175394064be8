# frozen_string_literal: true

# Moves the objects of this process like a compaction.
module Moving
  OPTIONS = { toward: :empty }.freeze

  module_function

  # Moves all movable objects; a plain compaction only moves objects into free slots before them. Ruby then checks that
  # no reference to an old address is left. Ruby 3.3.8 may crash when objects move while a WeakMap has entries of dead
  # objects, which a collection clears.
  def move
    GC.start
    GC.respond_to?(:verify_compaction_references) ? GC.verify_compaction_references(**OPTIONS) : GC.start
  rescue NotImplementedError
    GC.start
  end

  # Lets Ruby move objects at each full collection during the block.
  #
  # @return [Object] the block's result
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
