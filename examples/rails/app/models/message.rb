# frozen_string_literal: true

class Message < ApplicationRecord
  validates :text, presence: true, length: { maximum: 200 }

  after_create_commit { ActionCable.server.broadcast("messages", { id: id, text: text }) }
end
